"""Version of this package; equal to the version of the Rust workspace."""

__version__ = "0.1.0"
