"""Components in memory that are withheld until they are released."""

from dataclasses import replace

from tradewind.node_task_manager.domain.component import ComponentStatus, Release, RunSubmission
from tradewind.node_task_manager.domain.node_task import StopMark
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.claiming import MemoryClaiming


class MemoryWithheld(MemoryClaiming):
    """Lets withheld components begin, or skips them, once."""

    def _stop_marks(self, run: RunSubmission, component_id: str) -> list[StopMark]:
        """Return the stop marks that apply to a component; the mark of the run spares withheld components."""
        applicable = (component_id,) if component_id in run.withheld else ("", component_id)
        stops = [self._stops.get((str(run.run), each)) for each in applicable]
        return [stop[1] for stop in stops if stop is not None and stop[0] == run.run_id]

    def _withhold(self, run: RunSubmission, owner: tuple[str, str]) -> bool:
        """Withhold a component if its run says so; return whether it does."""
        held = owner[1] in run.withheld
        self._components[owner] = replace(self._components[owner], withheld=held)
        return held

    def _release_component(self, owner: tuple[str, str], release: Release, call: Call) -> None:
        component = self._components.get(owner)
        if component is None or not component.withheld:
            return
        self._components[owner] = replace(component, withheld=False)
        if release.skip:
            self._unwanted.add(owner)
            self._stop_component(owner, StopMark(release.skip, "system", self._clock()), call)
            return
        if release.inputs_json:
            self._inputs[owner] = release.inputs_json
        plan = self._plans[component.plan]
        for place in plan.entries:
            if component.run.task_id(plan.nodes[place].node_id) not in self._tasks:
                self._enqueue(self._create(owner, place))

    def _stop_component(self, owner: tuple[str, str], mark: StopMark, call: Call) -> None:
        component = self._components[owner]
        if component.withheld and component.status is ComponentStatus.RUNNING:
            self._components[owner] = replace(component, withheld=False)
        super()._stop_component(owner, mark, call)
