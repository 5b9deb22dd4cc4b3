"""What makes the artefacts: corpus, features, projectors, teacher and fitted polynomial."""
