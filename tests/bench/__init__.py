"""Benchmarks: ratios against floors measured in the same run, because machines are shared and noisy."""
