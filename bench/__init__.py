"""Runs federated algorithms: plans sweeps, trains, stores and compares. The one root above the three leaf packages."""

__version__ = "0.1.0"
