"""Components in memory that are withheld until they are released."""

from tradewind.node_task_manager.domain.component import ComponentStatus, Release, RunSubmission
from tradewind.node_task_manager.domain.node_task import StopMark
from tradewind.node_task_manager.stores.memory.call import Call
from tradewind.node_task_manager.stores.memory.claiming import MemoryClaiming
from tradewind.node_task_manager.stores.memory.replacing import replace


class MemoryWithheld(MemoryClaiming):
    """Lets withheld components begin, or skips them, once."""

    def _stop_mark(self, run: RunSubmission, component_id: str) -> StopMark | None:
        """Return the stop mark that applies to a component; the mark of the run spares withheld components."""
        for at in (component_id,) if component_id in run.withheld else ("", component_id):
            run_id, mark = self._stops.get((str(run.run), at), ("", None))
            if run_id == run.run_id:
                return mark
        return None

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
        self._begin_entries(owner)

    def _stop_component(self, owner: tuple[str, str], mark: StopMark, call: Call) -> None:
        component = self._components[owner]
        if component.withheld and component.status is ComponentStatus.RUNNING:
            self._components[owner] = replace(component, withheld=False)
        super()._stop_component(owner, mark, call)
