import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Java's clients: `auto.offset.reset=none`; the producer as it is, which is idempotent. Says what lines.py tells of. */
public final class UncleanElection {
    private static final long AFTER_ERROR_NANOS = TimeUnit.SECONDS.toNanos(2);

    private UncleanElection() {}

    public static void main(String[] arguments) throws Exception {
        String role = arguments[0];
        String bootstrap = arguments[1];
        String topic = arguments[2];
        String group = arguments[3];
        String last = arguments[4];
        say("version", "Java", AppInfoParser.getVersion());
        if (role.equals("write")) {
            write(bootstrap, topic);
            return;
        }
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false", "auto.offset.reset",
                role.equals("commit") ? "earliest" : "none"));
        if (!role.equals("read")) {
            properties.put("group.id", group);
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            if (role.equals("read")) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.subscribe(List.of(topic));
            }
            read(consumer, partition, last);
            if (role.equals("commit")) {
                consumer.commitSync();
                say("committed");
            }
        }
    }

    private static void read(KafkaConsumer<String, String> consumer, TopicPartition partition, String last) {
        Long deadline = null;
        while (true) {
            ConsumerRecords<String, String> records;
            try {
                records = consumer.poll(Duration.ofMillis(200));
            } catch (KafkaException error) {
                if (deadline != null) {
                    say("stays");
                    return;
                }
                String place = "-";
                if (error instanceof LogTruncationException truncated) {
                    OffsetAndMetadata divergent = truncated.divergentOffsets().get(partition);
                    place = divergent == null ? "-" : String.valueOf(divergent.offset());
                }
                say("told", error.getClass().getSimpleName(), place, error.getMessage());
                deadline = System.nanoTime() + AFTER_ERROR_NANOS;
                continue;
            }
            for (ConsumerRecord<String, String> record : records) {
                say("got", record.offset(), record.value());
                deadline = null;
                if (record.value().equals(last)) {
                    return;
                }
            }
            if (deadline != null && System.nanoTime() > deadline) {
                say("stays");
                return;
            }
        }
    }

    private static void write(String bootstrap, String topic) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        String command;
        while ((command = commands.readLine()) != null) {
            String[] words = command.split(" ");
            KafkaProducer<String, String> producer = producers.computeIfAbsent(words[0],
                    name -> new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer()));
            for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                String value = words[1] + "-" + i;
                try {
                    say("acked", producer.send(new ProducerRecord<>(topic, 0, null, value))
                            .get(30, TimeUnit.SECONDS).offset(), value);
                } catch (ExecutionException failed) {
                    say("failed", failed.getCause().getClass().getSimpleName(), "-", failed.getCause().getMessage());
                }
            }
            say("done");
        }
        producers.values().forEach(KafkaProducer::close);
    }

    private static void say(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            line.append(line.length() == 0 ? "" : "\t").append(String.valueOf(field).strip().replaceAll("\\s+", " "));
        }
        System.out.println(line);
    }
}
