"""Faults: small pure functions from a response to a response, one short file a family; `catalogue` lists them all."""
