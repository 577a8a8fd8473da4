"""One attempt to take the cards of one training job: its states, its table, its deadlines. Pure."""
