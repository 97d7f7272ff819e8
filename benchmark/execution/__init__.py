"""Running cells: engines, the queue, the scheduler, and what is kept beside records."""
