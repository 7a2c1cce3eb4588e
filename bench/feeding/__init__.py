"""The parts of `bench/feed.py`: what feeds a training loop, Forebay beside its peers."""
