"""Other services' shapes: each file translates one service's calls to the use cases that /v1 has."""
