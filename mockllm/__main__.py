"""`python -m mockllm` is the command `mockllm`."""

from mockllm.cli import main

main()
