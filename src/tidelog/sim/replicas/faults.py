"""What can go wrong with replicas of several nodes, the messages between them, and their controller."""

from __future__ import annotations

from tidelog.sim.faults.faults import Kind, Kinds

REPLICA_FAULTS = Kinds(
    rates={
        "message dropped": Kind("{amount:.1%} of all messages are lost", amount=lambda r: 0.1 * r.random()),
        "message repeated": Kind("{amount:.1%} of all messages arrive twice", amount=lambda r: 0.2 * r.random()),
        "message delayed": Kind("{amount:.1%} of all messages are late", amount=lambda r: 0.1 * r.random()),
        "network slow": Kind("messages take up to {amount:.0f} ms", amount=lambda r: 5 + 75 * r.random()),
        "disk slow": Kind(
            "what waits for a disk waits for up to {amount:.0f} ms", amount=lambda r: 5 + 200 * r.random()
        ),
    },
    steps={
        "kill": Kind("kill broker {broker}; start it {seconds:.3f} s later", weight=4, lasts_ms_max=4_000),
        "kill in step": Kind(
            "kill broker {broker} in place of its disk's change {amount:.0f} from then; start it {seconds:.3f} s later",
            weight=4,
            amount=lambda r: r.randrange(0, 40),
        ),
        "power loss": Kind("broker {broker} loses power; start it {seconds:.3f} s later", weight=4, lasts_ms_max=4_000),
        "power loss in step": Kind(
            "broker {broker} loses power in place of its disk's change {amount:.0f} from then; start it "
            "{seconds:.3f} s later",
            weight=4,
            amount=lambda r: r.randrange(0, 40),
        ),
        "disk lost": Kind("broker {broker} loses power and all it had; start it {seconds:.3f} s later"),
        "bit rot": Kind(
            "kill broker {broker}, flip a bit of a log, have all of it looked at; start it {seconds:.3f} s later"
        ),
        "stop": Kind("stop broker {broker} cleanly; start it {seconds:.3f} s later", weight=2),
        "disk full": Kind(
            "the disk of broker {broker} takes {amount:.0f} more bytes, for {seconds:.3f} s",
            amount=lambda r: r.randrange(0, 8_000),
            lasts_ms_max=5_000,
        ),
        "partition": Kind(
            "broker {broker} is cut off from another, either way, for {seconds:.3f} s", weight=3, lasts_ms_max=8_000
        ),
        "isolation": Kind(
            "nothing passes from or to broker {broker} for {seconds:.3f} s", weight=2, lasts_ms_max=8_000
        ),
        "deafness": Kind("nothing passes to broker {broker} for {seconds:.3f} s", weight=2, lasts_ms_max=8_000),
        "muteness": Kind("nothing passes from broker {broker} for {seconds:.3f} s", weight=2, lasts_ms_max=8_000),
        "lost controller": Kind(
            "broker {broker} and the controller are parted for {seconds:.3f} s", weight=3, lasts_ms_max=8_000
        ),
        "swizzle": Kind(
            "cut all brokers off, one after the other, within {seconds:.3f} s; bring them back in another order",
            lasts_ms_max=6_000,
        ),
        "session expiry": Kind("the controller takes the session of broker {broker} for over", weight=3),
        "preferred election": Kind("elect the preferred leaders", weight=2),
        "reassignment": Kind("move a replica from one broker to another, and back after {seconds:.3f} s", weight=2),
        "topic recreated": Kind("delete a topic, and make one of the same name after {seconds:.3f} s"),
        "clock jump": Kind(
            "the wall clock of broker {broker} jumps by {amount:.0f} ms",
            amount=lambda r: r.randrange(-3_000_000, 3_000_000),
        ),
    },
    at_once_max=6,
    gap_ms_max=6_000,
)
