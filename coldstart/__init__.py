"""What happens between the first request and the first answer: hold queue, phases, expected start time."""
