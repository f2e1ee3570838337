"""From layers to tasks."""
