"""The replayed side: workflow skeletons and the records that cross to the activities. No I/O, clock, randomness."""
