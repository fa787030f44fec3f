"""Writers by what they write with. There is one: `pytorch`."""
