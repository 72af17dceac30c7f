"""How a run goes: who takes part, what is recorded, and how a failure is made short."""
