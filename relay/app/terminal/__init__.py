"""What a person watches while something happens, and the streams it goes to; decides nothing."""
