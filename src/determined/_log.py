"""How log lines look. The library only logs; commands and launchers decide where lines go."""

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
