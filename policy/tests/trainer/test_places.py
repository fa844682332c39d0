"""Where ranks run: torchrun's arguments for one host and for several."""

from __future__ import annotations

import socket

import pytest
from troupe_policy.trainer.ranks.torchrun import Places, interface_towards


def test_one_host_starts_all_ranks() -> None:
    assert Places(4).arguments() == ["--standalone", "--nproc-per-node", "4"]


def test_each_of_several_hosts_starts_its_share_and_the_first_has_rank_0() -> None:
    arguments = Places(16, 4, 2, "learner:29400").arguments()
    pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert pairs == {
        "--nnodes": "4",
        "--node-rank": "2",
        "--nproc-per-node": "4",
        "--rdzv-backend": "static",
        "--master-addr": "learner",
        "--master-port": "29400",
    }


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert Places(2, 2, 0, "[fd00::1]:29400").address() == ("fd00::1", 29400)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (Places(4, 2, 0, None), "train.rendezvous is None"),
        (Places(4, 2, 0, "learner"), "train.rendezvous is 'learner'"),
        (Places(4, 2, 0, ":29400"), "train.rendezvous"),
        (Places(5, 2, 0, "learner:1"), "5 ranks on 2 hosts"),
        (Places(4, 2, 2, "learner:1"), "number 2"),
    ],
)
def test_places_that_make_no_group_are_refused(places: Places, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        places.arguments()


def test_the_interface_is_the_one_that_leads_to_the_rendezvous() -> None:
    names = {name for _, name in socket.if_nameindex()}
    assert interface_towards("127.0.0.1", 29400) in names
    assert interface_towards("no.such.host.invalid", 29400) == ""
