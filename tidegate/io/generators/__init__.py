"""Sources without a system behind them: numbers, the author's own iterators, sockets, and files that grow."""
