import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Java's clients. Says what lines.py tells of; what they do is on stderr if the log level says so. */
public final class Failover {
    private static final long EVERY_MILLIS = 5;

    private Failover() {}

    public static void main(String[] arguments) throws InterruptedException {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        String protocol = Stream.of(arguments)
                .filter(one -> one.startsWith("--group="))
                .map(one -> one.substring("--group=".length()))
                .findFirst()
                .orElse(null);
        Thread reader = new Thread(() -> read(bootstrap, topic, protocol), "reader");
        reader.setDaemon(true);
        reader.start();
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", bootstrap, "acks", "all", "client.id", "writer"));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            while (true) {
                long sent = nanos();
                String value = String.format("%-100d", sent);
                producer.send(new ProducerRecord<>(topic, 0, null, value), (written, failed) -> {
                    if (failed == null) {
                        say("acknowledged", sent);
                    }
                });
                Thread.sleep(EVERY_MILLIS);
            }
        }
    }

    private static void read(String bootstrap, String topic, String protocol) {
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", bootstrap, "client.id", "reader"));
        if (protocol != null) {
            properties.putAll(Map.of("group.id", topic, "group.protocol", protocol));
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            if (protocol == null) {
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
            } else {
                consumer.subscribe(List.of(topic));
            }
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    say("read", Long.parseLong(record.value().strip()));
                }
            }
        }
    }

    private static synchronized void say(String event, long sent) {
        System.out.println(event + " " + sent + " " + nanos());
    }

    private static long nanos() {
        Instant now = Instant.now();
        return TimeUnit.SECONDS.toNanos(now.getEpochSecond()) + now.getNano();
    }
}
