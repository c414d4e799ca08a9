"""The demo: Fernpost's support messages, its written house rules, and their splits; see docs/demo-task.md."""
