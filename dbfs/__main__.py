"""``python -m dbfs``: the command line."""

from dbfs.cli import main

main()
