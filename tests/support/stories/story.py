"""Stories of replicas: what an operator, a producer or a network does, and the logs as they are then.

`A leader   epoch=1  [m1@0 | m2@0]` is a broker, its part, the leader epoch that it goes by, and its log: `m@e` is
record m of leader epoch e; what is left of `|` lies below its high watermark. Brokers are letters.
"""

from __future__ import annotations

from typing import ClassVar

from support.old_rules.replica_rules import OLD_RULES
from support.stories.datadriven import StoryError
from support.stories.story_commands import StoryCommands
from support.worlds.replica_values import Rules
from support.worlds.replica_world import InvariantBrokenInWorldError


class Story(StoryCommands):
    """One world of replicas, and the commands that made it what it is."""

    old_rules: ClassVar[dict[str, Rules]] = {name: old.rules for name, old in OLD_RULES.items()}

    def breaks_under(self, rules: Rules) -> bool:
        """Whether what was played breaks more under other rules than it does here, as far as it can be played there."""
        other = Story(rules)
        for played in self._played:
            try:
                other.do(played)
            except StoryError:
                return False
            if not set(other.broken()) <= set(self.broken()):
                return True
        return False

    def broken(self) -> list[str]:
        try:
            self.world.check()
        except InvariantBrokenInWorldError as error:
            return str(error).splitlines()
        return []
