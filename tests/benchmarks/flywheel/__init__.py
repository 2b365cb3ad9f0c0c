"""Benchmarks of the flywheel: families of tasks, interference, a file of hard problems, honest negatives."""
