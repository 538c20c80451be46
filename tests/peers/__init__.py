"""Raw-socket peers for tests: an upstream that does exactly what its script says, a client that sees every read.

They know sockets and just enough of HTTP to tell where a message ends. They must not know mockllm.
"""
