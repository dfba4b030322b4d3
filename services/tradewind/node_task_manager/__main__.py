"""Run the node task manager: `python -m tradewind.node_task_manager`."""

import tradewind.grpc_engine  # before grpc
import tradewind.server.first_process  # noqa: F401 - before what takes long to import
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.server.process import run

if __name__ == "__main__":
    run(NodeTaskManager, NodeTaskManagerSettings, "tradewind-node-task-manager")
