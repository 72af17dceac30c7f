import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words by Kafka Streams, exactly once: each word that is read writes how often it came so far.
 * Arguments: the source, the target, and settings as key=value. Ends with status 1 when Streams gives up.
 */
public final class WordCounts {
    public static void main(String[] arguments) throws InterruptedException {
        Properties properties = new Properties();
        for (int index = 2; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            properties.put(setting[0], setting[1]);
        }
        Serde<String> strings = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[0], Consumed.with(strings, strings))
                .groupBy((key, word) -> word, Grouped.with("words", strings, strings))
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(arguments[1], Produced.with(strings, strings));
        CountDownLatch ended = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((state, before) -> {
            System.err.println(state);
            if (state == KafkaStreams.State.PENDING_ERROR || state == KafkaStreams.State.ERROR) {
                ended.countDown();
            }
        });
        streams.start();
        ended.await();
        Runtime.getRuntime().halt(1);
    }

    private WordCounts() {
    }
}
