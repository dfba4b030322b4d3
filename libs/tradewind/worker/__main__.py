"""`python -m tradewind.worker MODULE[:ATTRIBUTE] ...`: runs a worker with the nodes of modules."""

import argparse
import gc
import sys

from tradewind.tls import TlsFiles
from tradewind.worker import Worker, WorkerError, load_nodes
from tradewind.worker.telemetry import configure_worker_logging


def main() -> None:
    """Run a worker until SIGTERM or SIGINT; exits with 1 when it cannot start or is refused."""
    parser = argparse.ArgumentParser(prog="python -m tradewind.worker", description="Runs the nodes of modules.")
    parser.add_argument("modules", nargs="+", metavar="MODULE[:ATTRIBUTE]", help="where the nodes are")
    parser.add_argument(
        "--address",
        help="of the node task manager (TRADEWIND_NODE_TASK_MANAGER_ADDRESS, else TRADEWIND_ADDRESS, localhost:7700)",
    )
    parser.add_argument("--registry-address", help="of the registry (TRADEWIND_REGISTRY_ADDRESS, the same)")
    parser.add_argument("--scheduler-address", help="of the scheduler (TRADEWIND_SCHEDULER_ADDRESS, the same)")
    parser.add_argument("--worker-id", help="differs between processes; made up by default")
    parser.add_argument("--capacity", type=int, help="node tasks held at most (100; without async nodes what can run)")
    parser.add_argument("--processes", type=int, help="in which nodes with process=True run (one for each processor)")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds to finish on SIGTERM (%(default)s)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="be called there instead of opening a stream")
    parser.add_argument("--api-url", help="where others reach it, when that is not what it listens on")
    parser.add_argument("--tls-ca", metavar="FILE", help="PEM file of the CA of servers, or system (TRADEWIND_TLS_CA)")
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM file of a certificate to show (TRADEWIND_TLS_CERT)")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file of its key (TRADEWIND_TLS_KEY)")
    parser.add_argument("--tls-server-name", metavar="NAME", help="the name in servers' certificates")
    given = parser.parse_args()
    try:
        configure_worker_logging()
        nodes = [node for module in given.modules for node in load_nodes(module)]
        worker = Worker(
            nodes,
            address=given.address,
            registry_address=given.registry_address,
            scheduler_address=given.scheduler_address,
            worker_id=given.worker_id,
            capacity=given.capacity,
            process_capacity=given.processes,
            grace=given.grace,
            listen=given.listen,
            api_url=given.api_url,
            credentials=TlsFiles.find(given.tls_ca, given.tls_cert, given.tls_key, given.tls_server_name),
        )
        # What is here now stays for good: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        worker.run()
    except (WorkerError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
