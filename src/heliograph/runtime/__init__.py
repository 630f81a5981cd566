"""Process infrastructure: sockets, logs, metrics, threads, child processes and watchdogs."""
