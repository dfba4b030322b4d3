-- The fields of a run that hold several values, packed one after the other: as such a sequence they are far cheaper to
-- write and read than a field for each, or a list.
local packing = {}
do
  local MOST, NONE = 1000, {}
  -- Of edge, stop and slots, which follow one another in the state of a node task: few have any of them.
  local NO_THREE = string.rep(cmsgpack.pack(nil), 3)
  -- What MessagePack puts before a text of up to 31 bytes, by its length, and before a list of up to 15 values,
  -- likewise.
  local TEXT, LIST = {}, {}
  for length = 0, 31 do TEXT[length] = string.char(0xa0 + length) end
  for length = 0, 15 do LIST[length] = string.char(0x90 + length) end
  -- Packed values, kept from script to script: nearly all come up again, and joining texts takes a third of the time.
  local values, known = nil, 0
  local function forget()
    known = 0
    values = setmetatable({[NONE] = cmsgpack.pack(nil)}, {__index = function(texts, value)
      known = known + 1
      texts[value] = cmsgpack.pack(value)
      return texts[value]
    end})
  end
  forget()
  fresh(function() if known > MOST then forget() end end)

  -- Packs a text that hardly comes up again: joining texts takes less time than a call.
  local function packed_text(text)
    local before = TEXT[#text]
    return before and before .. text or cmsgpack.pack(text)
  end

  -- Packs when a node task ended, and the handles by which it emitted.
  local function packed_end(ended)
    local before, text = LIST[#ended], values[ended[1]]
    if not before then return cmsgpack.pack(ended) end
    for i = 2, #ended do text = text .. values[ended[i]] end
    return before .. text
  end

  -- Packs what is known about a component from its beginning, for its field `facts`. `parts` counts the components of
  -- its run when there are several; `has_inputs` says whether the run has inputs.
  function packing.facts(comp, submitted_at, node_type, edition)
    local packed = values
    return packed_text(comp.run_id) .. packed[comp.user_id] .. packed[comp.plan] .. packed[comp.nodes]
      .. packed[comp.policy] .. packed[comp.partition] .. packed[comp.planned]
      .. (comp.traceparent and cmsgpack.pack(comp.traceparent) or packed[false])
      .. packed[comp.parts] .. packed[submitted_at] .. packed[node_type] .. packed[edition] .. packed[comp.has_inputs]
  end

  function packing.facts_of(text)
    local run_id, user_id, plan, nodes, policy, partition = cmsgpack.unpack(text)
    return {run_id = run_id, user_id = user_id, plan = plan, nodes = nodes, policy = policy, partition = partition}
  end

  -- Packs what changes about most components, for their field `state`: status, how many nodes are completed, how many
  -- of these are sinks, whether the component is eventful (see `component`), and when it finished.
  function packing.state(comp)
    local packed = values
    return packed[comp.status] .. packed[comp.completed] .. packed[comp.sinks] .. packed[comp.eventful]
      .. packed[comp.finished_at or NONE]
  end

  -- Returns these values; a component that has only begun has no such field.
  function packing.state_of(text)
    if not text then return 'running', 0, 0, false end
    return cmsgpack.unpack(text)
  end

  -- Packs what every node task comes to have, for its field `state`. The mark of a stop is in a field of its own.
  function packing.task(record)
    local packed = values
    return packed[record.status] .. packed[record.component_id] .. packed[record.index] .. packed[record.registered_at]
      .. packed[record.ready_at or NONE] .. packed[record.attempt or NONE]
      .. (record.nonce and packed_text(record.nonce) or packed[NONE]) .. packed[record.worker_id or NONE]
      .. packed[record.started_at or NONE] .. packed[record.close_at or NONE]
      .. ((record.edge or record.stop or record.slots)
        and packed[record.edge or NONE] .. packed[record.stop and true or NONE] .. packed[record.slots or NONE]
          or NO_THREE)
      .. (record.ended and packed_end(record.ended) or packed[NONE])
  end
end
