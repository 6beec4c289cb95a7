"""Floor 3: the files that travel between the verbs, and the JSON that each verb prints."""
