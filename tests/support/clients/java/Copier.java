import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A copier by Java's clients: see tests/support/load/copiers. Arguments: bootstrap, source, target, name. */
public final class Copier {
    private static final Duration POLL = Duration.ofMillis(200);

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        String source = arguments[1];
        String target = arguments[2];
        String name = arguments[3];
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // until it ends
                }
            } catch (java.io.IOException ended) {
                // as well
            }
            Runtime.getRuntime().halt(0);
        });
        end.setDaemon(true);
        end.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                     properties(bootstrap, Map.of("group.id", name, "isolation.level", "read_committed",
                             "enable.auto.commit", "false", "auto.offset.reset", "earliest",
                             "max.poll.records", "20", "session.timeout.ms", "6000")),
                     new ByteArrayDeserializer(), new ByteArrayDeserializer());
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                     properties(bootstrap, Map.of("transactional.id", name, "max.block.ms", "30000")),
                     new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (!records.isEmpty()) {
                    copy(records, target, consumer, producer);
                }
            }
        }
    }

    private static void copy(ConsumerRecords<byte[], byte[]> records, String target,
                             KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), ""));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            while (true) {
                try {
                    producer.commitTransaction();
                    return;
                } catch (TimeoutException passes) {
                    // asked again
                }
            }
        } catch (KafkaException failed) {
            System.err.println("aborts: " + failed);
            producer.abortTransaction(); // throws where the producer cannot go on: then this program ends
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            for (TopicPartition partition : consumer.assignment()) {
                OffsetAndMetadata position = committed.get(partition);
                if (position == null) {
                    consumer.seekToBeginning(List.of(partition));
                } else {
                    consumer.seek(partition, position);
                }
            }
        }
    }

    private static Properties properties(String bootstrap, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.putAll(settings);
        return properties;
    }

    private Copier() {
    }
}
