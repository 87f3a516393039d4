"""Drives streams, queues and schedules into functions, with what hurts on AWS."""
