"""Engines that run rollouts."""
