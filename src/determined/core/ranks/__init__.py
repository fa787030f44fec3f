"""How the processes of one trial talk: meet, gather, broadcast, and find out who is alive."""
