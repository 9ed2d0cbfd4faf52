"""What Kafka holds, asked through confluent-kafka; and one connection's settings for both of its clients."""
