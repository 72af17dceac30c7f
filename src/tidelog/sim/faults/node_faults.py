"""What can go wrong with one production node, its disk, and the network between it and its clients."""

from __future__ import annotations

from tidelog.sim.faults.faults import FaultKind, Kinds

NODE_FAULTS = Kinds(
    rates={
        "network reset": FaultKind(
            "{amount:.2%} of what is written to the network resets its stream", amount=lambda r: 0.005 * r.random()
        ),
        "network straggle": FaultKind(
            "{amount:.0%} of what is sent takes ten times as long", amount=lambda r: 0.2 * r.random()
        ),
        "network cut": FaultKind("{amount:.0%} of what is sent arrives in two parts", amount=lambda r: r.random()),
        "network slow": FaultKind("what is sent takes up to {amount:.0f} ms", amount=lambda r: 5 + 75 * r.random()),
        "network loss": FaultKind(
            "{amount:.1%} of what is sent is lost, and sent again after 0.2 s or more; other streams go on meanwhile",
            amount=lambda r: 0.05 * r.random(),
        ),
        "network half reset": FaultKind(
            "{amount:.2%} of what is written resets its stream for the writer alone; the other end gets it up to 2 s "
            "later",
            amount=lambda r: 0.01 * r.random(),
        ),
        "disk stall": FaultKind(
            "{amount:.2%} of what waits for the disk waits for seconds", amount=lambda r: 0.01 * r.random()
        ),
        "disk slow": FaultKind(
            "what waits for the disk waits for up to {amount:.0f} ms", amount=lambda r: 5 + 45 * r.random()
        ),
        "disk cold": FaultKind("{amount:.0%} of what is read is not in memory", amount=lambda r: r.random()),
    },
    steps={
        "kill": FaultKind("kill the node; start it {seconds:.3f} s later", weight=4),
        "kill in step": FaultKind(
            "kill the node in place of the disk's change {amount:.0f} from then; start it {seconds:.3f} s later",
            weight=4,
            amount=lambda r: r.randrange(0, 30),
        ),
        "power loss": FaultKind("the node loses power; start it {seconds:.3f} s later", weight=4),
        "power loss in step": FaultKind(
            "the node loses power in place of the disk's change {amount:.0f} from then; start it {seconds:.3f} s later",
            weight=4,
            amount=lambda r: r.randrange(0, 30),
        ),
        "kill while starting": FaultKind(
            "kill the node, and again in place of change {amount:.0f} of the disk after that; start it "
            "{seconds:.3f} s later",
            weight=2,
            amount=lambda r: r.randrange(0, 60),
        ),
        "stop": FaultKind("stop the node cleanly; start it {seconds:.3f} s later", weight=2),
        "partition": FaultKind("nothing gets through, either way, for {seconds:.3f} s", weight=2, lasts_ms_max=12_000),
        "partition to node": FaultKind("nothing gets through to the node for {seconds:.3f} s", lasts_ms_max=12_000),
        "partition from node": FaultKind("nothing gets through from the node for {seconds:.3f} s", lasts_ms_max=12_000),
        "disk full": FaultKind(
            "the disk takes {amount:.0f} more bytes, for {seconds:.3f} s",
            amount=lambda r: r.randrange(0, 20_000),
            lasts_ms_max=8_000,
        ),
        "clock jump": FaultKind(
            "the node's wall clock jumps by {amount:.0f} ms", amount=lambda r: r.randrange(-3_600_000, 3_600_000)
        ),
        "bit rot": FaultKind(
            "kill the node, flip a bit {amount:.0f} parts in a million into a log of records; start it "
            "{seconds:.3f} s later",
            amount=lambda r: r.randrange(0, 1_000_000),
        ),
    },
    at_once_max=3,
    gap_ms_max=8_000,
)
