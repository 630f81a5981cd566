"""What a process of the service runs on: sockets, logs, counters, threads, and looking after itself."""
