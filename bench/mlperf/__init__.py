"""Workloads of MLPerf Storage: training loops with a sleeping accelerator, and checkpoints."""
