#!/usr/bin/env python
"""The command line. Starts the embedded PostgreSQL and Redis for commands that need them."""

import os
import sys

NO_SERVERS = {"help", "version", "--version", "--help", "-h", "makemessages", "compilemessages"}
NO_SERVERS |= {"start"}  # becomes a program that has servers of its own


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from apps.common import embedded
    from workers.start import read_secret_files

    read_secret_files()
    wanted = len(sys.argv) > 1 and sys.argv[1] not in NO_SERVERS and "--help" not in sys.argv
    with embedded.servers(start=wanted):
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
