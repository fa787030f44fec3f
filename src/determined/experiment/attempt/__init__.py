"""Run one attempt of a trial on a machine: its agent and guard, its directories, what it prints, how it ends."""
