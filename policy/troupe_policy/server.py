"""`python -m troupe_policy.server --serve render|engine|trainer`: serves one of three services of a model on a unix
socket.

In: a model directory and options on the command line. Out: {"ready": true, "socket": …} on stdout, logs on stderr.
Invariant: the process ends with its parent. If the model cannot be served, it writes the reason to stdout and exits
with 1; a rank of the trainer other than 0 writes it to stderr. Only this file knows all services. It imports each one
late, so that the renderer starts without torch.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from .child_process import announce, die_with_parent, exit_now, fail, socket_address
from .generated import policy_pb2_grpc as rpc
from .library_settings import set_library_variables
from .trainer.ranks.torchrun import Places, in_torchrun, run_ranks

# Upper bound on the size of one gRPC message.
MESSAGE_BYTES = 256 * 1024 * 1024
logger = logging.getLogger("troupe_policy")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parses the options of the service that --serve names. Options that a trainer requires have no default here,
    because the recipe's schema has their defaults.
    """
    parser = argparse.ArgumentParser(prog="troupe_policy.server")
    parser.add_argument("--serve", choices=("render", "engine", "trainer"), required=True)
    parser.add_argument("--model", required=True, help="model directory that transformers loads")
    parser.add_argument("--socket", help="unix:PATH of the socket; default: a path in a new private directory")
    parser.add_argument("--parent", type=int, help="pid of the parent, whose death ends this process")
    parser.add_argument("--template", help="file with a Jinja chat template that replaces the model's own")
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), help="dtype of an engine's weights, or of a trainer's matrix products; auto: bfloat16 on a GPU, float32 on a CPU")
    parser.add_argument("--threads", type=int, help="CPU threads that torch uses; 0: torch's own choice")
    trainer = parser.add_argument_group("trainer (required: device, dtype, published-dtype, threads, seed, ranks)")
    trainer.add_argument("--published-dtype", choices=("auto", "float32", "bfloat16"), help="dtype of the weights that engines load; auto: that of the matrix products")
    trainer.add_argument("--seed", type=int, help="seed of the trainer's random numbers")
    trainer.add_argument("--gradient-reduction", choices=("micro-batch", "update"), default="micro-batch", help="when ranks sum their gradients: after every micro-batch, or once per optimizer update")
    trainer.add_argument("--attention", choices=("auto", "sdpa", "varlen", "flex"), default="auto", help="kernel of packed sequences")
    trainer.add_argument("--compile", choices=("", "layer"), default="", help="torch.compile of each layer")
    trainer.add_argument("--checkpointing", action="store_true", help="compute activations again in the backward pass")
    trainer.add_argument("--lora-rank", type=int, help="train adapters of this rank instead of the whole model")
    trainer.add_argument("--lora-alpha", type=float, help="the adapters' product is scaled by alpha / rank")
    trainer.add_argument("--lora-targets", help="names of linear layers, separated by commas, or all-linear")
    trainer.add_argument("--ranks", type=int, help="number of trainer processes on all hosts together; torchrun starts them if there are several")
    trainer.add_argument("--nodes", type=int, default=1, help="number of hosts that the ranks are spread over")
    trainer.add_argument("--node-number", type=int, default=0, help="number of this host, 0 for the one that serves")
    trainer.add_argument("--rendezvous", help="HOST:PORT on host 0 where the ranks of several hosts find each other")
    trainer.add_argument("--max-step-tokens", type=int, default=1 << 27, help="upper bound on the tokens of one step, which are held in memory")
    trainer.add_argument("--rank-timeout", type=float, default=600.0, help="seconds that a rank waits for another")
    engine = parser.add_argument_group("engine")
    engine.add_argument("--kv-tokens", type=int, default=65536, help="capacity of the KV storage, in tokens")
    engine.add_argument("--block-tokens", type=int, default=16, help="tokens of one block of the KV storage")
    engine.add_argument("--max-sequences", type=int, default=128, help="upper bound on the sequences that run at once")
    engine.add_argument("--context-tokens", type=int, default=0, help="bound on prompt and response together; 0: the model's own, at most 4096")
    engine.add_argument("--prefill-tokens", type=int, default=4096, help="upper bound on the prefilled tokens of an iteration")
    engine.add_argument("--max-waiting", type=int, default=4096, help="upper bound on the requests that wait; more are refused")
    engine.add_argument("--deterministic", action="store_true", help="equal requests get equal answers, to the bit, whatever other requests run")
    engine.add_argument("--entropies", action="store_true", help="report the entropy of the distribution that each token was sampled from")
    engine.add_argument("--version", type=int, default=0, help="policy version of the model directory")
    given = parser.parse_args(argv)
    if given.serve == "trainer":
        lora = ("lora_rank", "lora_alpha", "lora_targets")
        adapted = lora if any(vars(given)[name] is not None for name in lora) else ()
        needed = ("device", "dtype", "published_dtype", "threads", "seed", "ranks", *adapted)
        missing = [f"--{name.replace('_', '-')}" for name in needed if vars(given)[name] is None]
        if missing:
            parser.error(f"a trainer needs {', '.join(missing)}")
    else:
        for name, value in (("device", "auto"), ("dtype", "auto"), ("threads", 0)):
            if vars(given)[name] is None:
                setattr(given, name, value)
    return given


SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # The parent pings during long generations; without these settings the server would close the connection.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


async def serve(given: argparse.Namespace) -> None:
    """Serves the renderer or the engine: many small calls on one event loop."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    failed: list[bool] = []

    def on_failure() -> None:
        failed.append(True)
        ended.set()

    add_service(server, given, on_failure)
    listen(server, given)
    await server.start()
    announce(socket=given.socket, pid=os.getpid())
    await ended.wait()
    await server.stop(grace=0.5)
    exit_now(1 if failed else 0)


def serve_trainer(given: argparse.Namespace) -> None:
    """Serves the trainer: one long call at a time, on threads. With several ranks, rank 0 serves and the others follow
    it.
    """
    if given.ranks > 1 and not in_torchrun():
        run_ranks(Places(given.ranks, given.nodes, given.node_number, given.rendezvous))
    # late: a process that becomes torchrun needs neither torch nor transformers
    from .trainer.service import TrainerService, follow, load_trainer

    if in_torchrun() and os.environ["RANK"] != "0":
        follow(given)
        return
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    # The trainer is made before the gRPC server, because the trainer may fork, which is unsafe beside gRPC's threads.
    service = TrainerService(lambda: load_trainer(given), given.threads, given.max_step_tokens)
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=SERVER_OPTIONS)
    rpc.add_TrainerServicer_to_server(service, server)
    listen(server, given)
    server.start()
    announce(socket=given.socket, pid=os.getpid())
    ended.wait()
    server.stop(grace=0.5).wait()
    exit_now(0)


def listen(server, given: argparse.Namespace) -> None:
    """Opens the socket for this user only, since a client may load weights."""
    given.socket = socket_address(given.socket)
    os.umask(0o077)
    server.add_insecure_port(given.socket)


def add_service(server: grpc.aio.Server, given: argparse.Namespace, on_failure) -> None:
    """Creates the renderer or the engine, as --serve names it. on_failure: called when the engine's loop dies."""
    if given.serve == "render":
        # late: the engine does not need jinja2
        from .render.renderer import Renderer
        from .render.service import RenderService

        rpc.add_RenderServicer_to_server(RenderService(Renderer(given.model, given.template)), server)
        return
    import torch

    if given.threads > 0:
        torch.set_num_threads(given.threads)
    # late: the renderer starts without torch and transformers
    from .engine.loaded_model import load_model
    from .engine.options import EngineOptions
    from .engine.service import EngineService
    from .model.tokens import Tokens

    if given.deterministic:
        # cuBLAS reads this environment variable when it starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    options = EngineOptions(
        kv_tokens=given.kv_tokens,
        block_tokens=given.block_tokens,
        max_sequences=given.max_sequences,
        context_tokens=given.context_tokens,
        prefill_tokens=given.prefill_tokens,
        max_waiting=given.max_waiting,
        deterministic=given.deterministic,
        entropies=given.entropies,
        version=given.version,
    )
    loaded = load_model(given.model, given.device, given.dtype)
    name = os.path.basename(os.path.abspath(given.model))
    service = EngineService(name, loaded, Tokens(given.model), options, on_failure)
    rpc.add_EngineServicer_to_server(service, server)


def main() -> None:
    given = arguments()
    # Under torchrun the parent process is torchrun, and --parent holds the pid of torchrun's own parent.
    die_with_parent(None if in_torchrun() else given.parent)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    set_library_variables()
    try:
        if given.serve == "trainer":
            serve_trainer(given)
        else:
            asyncio.run(serve(given))
    except Exception as error:
        logger.exception("cannot serve %s", given.serve)
        fail(f"policy.{type(error).__name__}", str(error) or type(error).__name__)


if __name__ == "__main__":
    main()
