"""What must not change under runs that are alive: the schemas of durable records, and histories that replay."""
