"""An environment of Harbor whose containers are those of `docker` without Compose, for tests/containers/harbor.test.ts.

Harbor's own class for Apple's `container` command, unchanged but for the check of the machine: the test puts a command
`container` on the path that hands its words to `docker`.
"""

from harbor.environments.apple_container import AppleContainerEnvironment


class DockerWithoutCompose(AppleContainerEnvironment):
    @classmethod
    def preflight(cls):
        pass
