"""How the processes of one trial exchange objects: register, gather, broadcast, and name who hangs or has ended."""
