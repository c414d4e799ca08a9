"""Model calls of code that we don't own, as traces: recorded, paid for or booked, and told apart by the prompt that they carry."""
