"""A trainer that computes nothing: it parses its command line and its calls' options with the real trainer's code, and
returns them.

In: the command line of troupe_policy.server. Out, as JSON: the parsed command line in Describe's `model`, the parsed
options in the error message of Sft and Step. With ECHO_SILENT set, every call but Describe stays without an answer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import grpc
from troupe_policy.generated import policy_pb2 as pb
from troupe_policy.generated import policy_pb2_grpc as rpc
from troupe_policy.child_process import announce, die_with_parent
from troupe_policy.server import arguments
from troupe_policy.trainer.options import GrpoOptions, SftOptions, TrainerError, options_of


class Echo(rpc.TrainerServicer):
    def __init__(self, given) -> None:
        self._given = given

    def Describe(self, request, context):
        return pb.TrainerInfo(model=json.dumps(vars(self._given)))

    def Sft(self, parts, context):
        return self._echo(SftOptions, parts, context)

    def Step(self, parts, context):
        return self._echo(GrpoOptions, parts, context)

    def Save(self, request, context):
        return self._silence(context)

    def Load(self, request, context):
        return self._silence(context)

    def _silence(self, context):
        while context.is_active():
            time.sleep(0.05)

    def _echo(self, kind, parts, context):
        if "ECHO_SILENT" in os.environ:
            self._silence(context)
            return
        for part in parts:
            try:
                message = json.dumps(asdict(options_of(kind, part.options)))
                yield pb.TrainEvent(last=True, error_code="test.echo", error_message=message)
            except TrainerError as error:
                yield pb.TrainEvent(last=True, error_code=error.code, error_message=str(error))


def main() -> None:
    # the first two arguments name the module, as in `-m troupe_policy.server`
    given = arguments(sys.argv[3:])
    die_with_parent(given.parent)
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    rpc.add_TrainerServicer_to_server(Echo(given), server)
    server.add_insecure_port(given.socket)
    server.start()
    announce(socket=given.socket, pid=os.getpid())
    threading.Event().wait()


main()
