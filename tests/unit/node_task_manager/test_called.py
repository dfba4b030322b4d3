"""Which replica calls a worker, and how long one that refuses is left alone."""

from collections import Counter

from tradewind.node_task_manager.domain.called import Patience, caller_of

WORKERS = [f"w{at}" for at in range(300)]


def test_replicas_share_workers_about_evenly() -> None:
    shares = Counter(caller_of(worker, ["a", "b", "c"]) for worker in WORKERS)
    assert sorted(shares) == ["a", "b", "c"]
    assert min(shares.values()) > 60


def test_only_the_share_of_a_replica_that_leaves_moves() -> None:
    for worker in WORKERS:
        before, after = caller_of(worker, ["a", "b", "c"]), caller_of(worker, ["c", "a"])
        assert after == before or before == "b"


def test_the_order_in_which_replicas_are_named_does_not_matter() -> None:
    assert [caller_of(w, ["a", "b"]) for w in WORKERS] == [caller_of(w, ["b", "a"]) for w in WORKERS]


def test_a_worker_that_refuses_again_and_again_is_left_alone_ever_longer_up_to_30_s() -> None:
    patience = Patience()
    pauses = [patience.refused(full=False) for _ in range(20)]
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses[-1] == 30
    patience.accepted()
    assert patience.refused(full=False) == 0.5


def test_one_that_is_full_is_left_alone_for_2_s_at_most() -> None:
    patience = Patience()
    assert [patience.refused(full=True) for _ in range(5)] == [0.5, 1, 2, 2, 2]


def test_what_it_asks_for_is_heeded_within_a_minute() -> None:
    patience = Patience()
    assert patience.refused(full=True, asked_s=7) == 7
    assert patience.refused(full=True, asked_s=3600) == 60
