"""What the use cases need from a store; the contract suite tests each method's docstring, sentence by sentence."""
