"""The way to the store, imported in one direction: values, link, journal, rows, recovery, store link, shipper."""
